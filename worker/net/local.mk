# worker/net
