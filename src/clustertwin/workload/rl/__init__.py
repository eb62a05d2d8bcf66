"""Train scheduling policies: job log -> training sequences -> masked PPO, evolution strategies -> policy file."""
