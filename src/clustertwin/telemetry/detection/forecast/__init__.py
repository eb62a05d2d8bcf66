"""What the channels of nodes and jobs lead to: when memory runs out."""
