# worker/agent
