"""Fit a calibrator on one logits file and apply it to another."""

import argparse

from calgrid.cli.options import file_options, flag, json_option, pair_options, path

RUN = "calibrate:calibrate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fitted = "calibrator to fit; several, or all, are ranked by cross-validation on the fit file"
    parser.add_argument("--calibrator", metavar="ID[,ID...]", help=fitted)
    pair_options(parser, required=False)
    path(parser, "--load", "FITTED", "use a saved calibrator instead of --fit")
    parser.add_argument("--rank-by", metavar="METRIC", help="metric of a ranking (nll)")
    parser.add_argument("--folds", type=int, default=5, help="folds of a ranking (5)")
    flag(parser, "--keeps-classes", "rank only calibrators that change no predicted class")
    out = (
        "calibrated file: .csv with one column per class, or .parquet, which keeps all that other "
        "commands use"
    )
    path(parser, "--out", "FILE", out)
    path(parser, "--save", "FITTED", "save the fitted calibrator (.safetensors)")
    plot = "draw the reliability before and after calibration (.pdf, .png, .svg)"
    path(parser, "--plot", "FILE", plot)
    parser.add_argument("--seed", type=int, default=0, help="seed of stochastic calibrators (0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter"
    )
    json_option(parser)
    file_options(parser)
