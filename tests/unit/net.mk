# net
