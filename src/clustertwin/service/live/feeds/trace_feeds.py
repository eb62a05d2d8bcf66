"""The feeds by name, for `from … import`."""

from clustertwin.service.live.feeds.live_feed import LiveFeed as LiveFeed
from clustertwin.service.live.feeds.prometheus_feed import PrometheusFeed as PrometheusFeed
from clustertwin.service.live.feeds.reading_stream import Stream as Stream
from clustertwin.service.live.feeds.replay_feed import ReplayFeed as ReplayFeed
