"""Runs of the claims on AWS: `python -m harness.aws up r6i.8xlarge`; the manual is docs/aws.md.

One machine per run, made by the AWS CLI and set up by cloud-init (`boot.sh`, `setup.sh`). It ends itself: at
the end of the run, at a failure, and at its time limit, whatever becomes of the process that started it.
Needs only Python and the CLI.
"""
