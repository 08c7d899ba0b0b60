# worker/inspect
