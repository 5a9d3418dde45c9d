"""calgrid: data -> train -> predict -> calibrate -> aggregate -> tables, figures, report."""

from snakemake.utils import min_version

min_version("9.20")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/hooks.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/probe.smk"
include: "workflow/rules/external.smk"
include: "workflow/rules/calibrate.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        f"{STUDY}/metrics.parquet",
        f"{STUDY}/summary.parquet",
        f"{STUDY}/costs.parquet",
        f"{STUDY}/tables",
        f"{STUDY}/figures",
        f"{STUDY}/report.html",
