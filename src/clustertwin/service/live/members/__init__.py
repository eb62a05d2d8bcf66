"""Other services whose clusters, or whose shards of one cluster, this service shows together."""
