# worker/backend
