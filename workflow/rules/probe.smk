rule probe:
    input:
        model=f"{RUN}/model.safetensors",
        data=BOOK.probe_data,
    output:
        f"{RUN}/probes/{{probe}}.parquet",
        f"{RUN}/probes/{{probe}}.json",
    log:
        f"{LOGS}/probe/{KEY}/{{probe}}.log",
    benchmark:
        f"{TIMES}/probe/{KEY}/{{probe}}.tsv"
    conda:
        "../../envs/probe.yaml"
    threads: 1
    resources:
        gpu=BOOK.gpus,
        mem_mb=BOOK.needs.probe_memory,
        runtime=60,
    params:
        folder=BOOK.probe_folder,
        data=f"{RESULTS}/data/{{dataset}}",
        spec=BOOK.probe_spec,
    shell:
        "python -m calgrid probe --spec {params.spec:q} --model {input.model:q} --data {params.data:q}"
        " --out {params.folder:q} --threads {threads} >> {log:q} 2>&1"
