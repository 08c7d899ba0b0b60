dist_man_MANS += %D%/gems-client.1 %D%/gems-job.5 %D%/gems-worker.8 %D%/gemsd.8
EXTRA_DIST += %D%/ARCHITECTURE.md %D%/MATH.md
