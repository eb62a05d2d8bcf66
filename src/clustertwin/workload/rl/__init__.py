"""Learn to schedule: a log -> sequences -> a trained policy, by masked PPO and by evolution."""
