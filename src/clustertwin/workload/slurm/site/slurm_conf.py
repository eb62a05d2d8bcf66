"""slurm.conf, gres.conf and topology.conf -> a site without accounts; a setting that is not used is reported."""

from __future__ import annotations

from pathlib import Path

from clustertwin.workload.slurm.site.conf_lines import SiteError, read_entries
from clustertwin.workload.slurm.site.conf_nodes import check_gres, node_groups, node_sets, read_switches
from clustertwin.workload.slurm.site.conf_partitions import read_partitions
from clustertwin.workload.slurm.site.conf_scheduling import (
    enforcement_settings,
    preemption_of_site,
    priority_weights,
    scheduler_parameters,
    selection_settings,
)
from clustertwin.workload.slurm.site.conf_settings import ConfSettings, cluster_settings, report_settings
from clustertwin.workload.slurm.site.slurm_site import SiteReport, SlurmSite


def read_slurm_conf(path: Path) -> SlurmSite:
    """A slurm.conf, with gres.conf and topology.conf beside it where they exist."""
    report = SiteReport()
    entries = read_entries(path)
    cluster = ConfSettings(cluster_settings(entries, report), report)
    groups = node_groups(entries, report)
    known = {name for group in groups for name in group.names}
    if not groups:
        raise SiteError(path, "no NodeName line; a site needs nodes")
    sets = node_sets(entries, groups)
    partitions = read_partitions(entries, known, sets, cluster)
    if not partitions:
        raise SiteError(path, "no PartitionName line; a site needs a partition")
    check_gres(path.with_name("gres.conf"), groups, report)
    report_settings(cluster)
    return SlurmSite(
        cluster.get("clustername", str, ""),
        groups,
        partitions,
        switches=read_switches(path.with_name("topology.conf"), known, cluster),
        scheduler=scheduler_parameters(cluster),
        priority=priority_weights(cluster),
        preemption=preemption_of_site(cluster),
        report=report,
        **selection_settings(cluster),
        **enforcement_settings(cluster),
    )
