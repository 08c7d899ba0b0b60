# worker/data
