rule predict:
    input:
        JOBS.repair_trigger(f"{RUN}/predict.json"),
        model=f"{RUN}/train.json",
        data=JOBS.predict_data,
    output:
        update(f"{RUN}/predict.json"),
    log:
        JOBS.layout.log("predict", KEY),
    benchmark:
        f"{TIMES}/predict/{KEY}.tsv"
    wildcard_constraints:
        protocol=JOBS.trained_protocols,
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.predict_threads
    resources:
        gpu=JOBS.gpus,
        mem_mb=JOBS.resources.predict_memory,
        runtime=JOBS.resources.predict_minutes,
    params:
        folder=subpath(input.model, parent=True),
        data=f"{RESULTS}/data/{{dataset}}",
        spec=JOBS.spec("predict"),
        # Snakemake does not compare parameters of functions with `input`, so fewer families trigger no job.
        families=lambda wildcards, input: JOBS.predict_families(wildcards),
    shell:
        "python -m calgrid predict --spec {params.spec:q} --model {params.folder:q}/model.safetensors"
        " --data {params.data:q} --shifts {params.families} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
