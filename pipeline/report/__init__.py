"""A run as a page: read run.db, draw nothing twice, write one HTML file that needs no network.

    python -m pipeline report runs/NAME

reader reads the run folder, samples chooses what is shown of the rollouts, waits says who waited for whom,
trace exports the same for Perfetto, page puts it all into the template. The assets are the page's own script
and style, and uPlot (MIT, see assets/uplot.LICENSE). Changes nothing in the run folder but report.html and
trace.json.
"""
