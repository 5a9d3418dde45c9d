rule probe:
    input:
        JOBS.repair_trigger(f"{RUN}/probes/{{probe}}.json"),
        model=f"{RUN}/train.json",
        data=JOBS.probe_data,
    output:
        update(f"{RUN}/probes/{{probe}}.json"),
    log:
        JOBS.layout.log("probe", f"{KEY}/{{probe}}"),
    benchmark:
        f"{TIMES}/probe/{KEY}/{{probe}}.tsv"
    conda:
        "../../envs/probe.yaml"
    threads: JOBS.resources.probe_threads
    resources:
        gpu=JOBS.gpus,
        mem_mb=JOBS.resources.probe_memory,
        runtime=JOBS.resources.probe_minutes,
    params:
        folder=subpath(input.model, parent=True),
        data=f"{RESULTS}/data/{{dataset}}",
        spec=JOBS.probe_spec,
    shell:
        "python -m calgrid probe --spec {params.spec:q} --model {params.folder:q}/model.safetensors"
        " --data {params.data:q} --out {params.folder:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
