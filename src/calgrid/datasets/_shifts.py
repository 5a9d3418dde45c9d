"""Names of corruptions that several shift families share."""

#: the corruptions of Hendrycks and Dietterich (ICLR 2019) that enter a mean over corruptions
STANDARD_SHIFTS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
#: the corruptions that the authors reserve for validation
EXTRA_SHIFTS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
