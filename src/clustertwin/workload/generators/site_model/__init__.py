"""The generator that learns a site. `site_generator` holds the model, the other files its parts."""

from clustertwin.workload.generators.site_model.site_generator import FittedSiteModel, SiteModel

__all__ = ["FittedSiteModel", "SiteModel"]
