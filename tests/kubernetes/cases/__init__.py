"""What is tried on the cluster. Each module has `run(cluster, given)`."""
