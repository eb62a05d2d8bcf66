from clustertwin.api.job_logs import compare as compare
from clustertwin.api.job_logs import generate as generate
from clustertwin.api.job_logs import read_log as read_log
from clustertwin.api.job_logs import simulate as simulate
from clustertwin.api.job_logs import simulate_site as simulate_site
from clustertwin.api.job_logs import train_policy as train_policy
from clustertwin.api.job_logs import write_log as write_log
from clustertwin.api.plots import plot as plot
from clustertwin.api.thread_telemetry import load_detector as load_detector
from clustertwin.api.thread_telemetry import open_recording as open_recording
from clustertwin.api.thread_telemetry import record_host as record_host
from clustertwin.api.thread_telemetry import simulate_cluster as simulate_cluster
from clustertwin.core.cluster_traces import ClusterTraces as ClusterTraces
from clustertwin.core.errors import TwinError as TwinError
from clustertwin.workload.example_log import example_log as example_log
from clustertwin.workload.generators import WorkloadChange as WorkloadChange
from clustertwin.workload.jobs import Jobs as Jobs

__version__: str
__all__: list[str]
