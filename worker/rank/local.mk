# worker/rank
