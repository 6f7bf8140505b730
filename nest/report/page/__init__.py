"""A plan as one self-contained HTML page: time, stages, pipeline, cluster, sensitivity, other choices, proof."""

from nest.report.page.document import report_document
from nest.report.page.facts import Reported, Searched, searched_of
from nest.report.page.page import page_text

__all__ = ["Reported", "Searched", "page_text", "report_document", "searched_of"]
