localrules:
    shifts,


rule prepare_data:
    input:
        BOOK.data_base,
    output:
        f"{RESULTS}/data/{{unit}}/manifest.json",
    params:
        folder=f"{RESULTS}/data/{{unit}}",
        options=BOOK.data_options,
        fingerprint=BOOK.data_fingerprint,
    log:
        f"{LOGS}/data/{{unit}}.log",
    benchmark:
        f"{TIMES}/data/{{unit}}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "python -m calgrid data --unit {wildcards.unit} --out {params.folder} {params.options} > {log} 2>&1"


# The shift families that this study wants of a data set are ready. Predictions depend on this one path, whose name is
# the same in all studies and whose time does not count (ancient): two studies with different shifts would otherwise
# undo each other's predictions, because Snakemake reruns a job whose set of input files has changed.
rule shifts:
    input:
        BOOK.shift_manifests,
    output:
        touch(f"{RESULTS}/data/{{dataset}}.shifts"),
    log:
        f"{LOGS}/data/{{dataset}}.shifts.log",
