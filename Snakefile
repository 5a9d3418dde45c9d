"""The workflow is workflow/Snakefile; this file lets plain ``snakemake`` run it from the root."""


include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
