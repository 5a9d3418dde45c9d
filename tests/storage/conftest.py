"""Disks that are full, and folders that must hold nothing but what was published."""

import resource
import subprocess

import pytest


@pytest.fixture(params=["tiny disk", "limited file size"])
def full_disk(request, tmp_path):
    """Folder on which 64 kB cannot be written: a real full disk, and a limit without rights."""
    folder = tmp_path / "full"
    folder.mkdir()
    if request.param == "tiny disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(folder)]
        try:
            mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        if not mounted:
            pytest.skip("mounting a small disk needs root")
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (48 * 1024, hard))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
