# Measurements; never part of make check.
EXTRA_DIST += %D%/torch_models.py %D%/torch_step.py %D%/torch_train.py %D%/tuned
