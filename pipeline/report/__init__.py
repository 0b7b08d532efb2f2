"""A run as a page: one HTML file that needs no network, or live (train_accelerated --watch DIR).

    python -m pipeline report runs/NAME

reader reads the run folder, samples chooses what is shown of the rollouts, waits says who waited for whom and
exports the same for Perfetto, page puts it all into the template. live_server answers on this machine only,
live_control starts, stops and resumes runs. The assets are the page's own script and style, and uPlot (MIT,
see assets/uplot.LICENSE). Changes nothing in the run folder but report.html and trace.json.
"""
