"""train_accelerated --watch DIR: the report live, on this machine only.

server answers, guard says to whom, control starts, stops and resumes runs. The page is the report's own
(pipeline.report), which asks for what is new. It reads run folders and signals processes; it trains nothing.
"""
