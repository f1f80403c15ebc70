"""A Slurm of one node for tests: controller and node daemon of the Debian packages, all state in one folder, no munge,
no systemd, no cgroups, eight made-up GPUs. Starts in about a second as root; nothing outside the folder is touched.
"""
import os
import pathlib
import signal
import socket
import subprocess
import time

# cred_expire=5 lets a requeued job start after 6 s instead of 121; config_overrides lets a small machine claim 64 CPUs.
SLURM_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=60
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000 Gres=gpu:fake:8 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports():
    """Two that differ."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


class OneNodeSlurm:
    """with OneNodeSlurm(folder) as slurm: slurm.submit("job.sbatch", cwd=...)"""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.environment.pop("OMPI_MCA_odls_base_sigkill_timeout", None)  # ranks get their second to stop, as users have it

    def __enter__(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        for index in range(8):
            os.mknod(self.folder / f"gpu{index}", 0o20666, os.makedev(1, 3))  # each a /dev/null
        host = socket.gethostname().split(".")[0]
        port, node_port = free_ports()
        text = SLURM_CONF.format(folder=self.folder, host=host, port=port, node_port=node_port)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu Type=fake File={self.folder}/gpu[0-7]\n")
        # slurmd of this age looks for a cgroup mount even when nothing uses it; an empty folder satisfies it.
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={self.folder}/cgroup\n")
        (self.folder / "cgroup").mkdir()
        for daemon in ("slurmctld", "slurmd"):
            self.run(["/usr/sbin/" + daemon, "-c"])
        deadline = time.monotonic() + 300
        while self.run(["sinfo", "-h", "-o", "%T"], check=False).strip() != "idle":
            if time.monotonic() > deadline:
                raise RuntimeError("Slurm did not start:\n" + self.logs())
            time.sleep(0.1)
        return self

    def __exit__(self, *unused):
        self.run(["scancel", "--full", "--user=root"], check=False)
        deadline = time.monotonic() + 15
        while self.run(["squeue", "-h"], check=False).strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        for daemon in ("slurmd", "slurmctld"):
            try:
                os.kill(int((self.folder / f"{daemon}.pid").read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                pass
        while any((self.folder / f"{daemon}.pid").exists() for daemon in ("slurmd", "slurmctld")):
            if time.monotonic() > deadline + 10:
                break
            time.sleep(0.1)

    def run(self, command, check=True, **options):
        result = subprocess.run(command, env=self.environment, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        if check and result.returncode != 0:
            raise RuntimeError(f"{command}: {result.returncode}\n{result.stdout}\n{self.logs()}")
        return result.stdout

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def submit(self, *arguments, cwd):
        return self.run(["sbatch", "--parsable", *arguments], cwd=cwd).split(";")[0].strip()

    def field(self, job, name):
        """A field of `scontrol show job`, e.g. JobState, Restarts, ExitCode."""
        for word in self.run(["scontrol", "show", "job", job], check=False).split():
            if word.startswith(name + "="):
                return word.split("=", 1)[1]
        return ""

    def wait(self, job, states, seconds=600):
        """Waits until the job is in one of the states; -> the state."""
        deadline = time.monotonic() + seconds
        while (state := self.field(job, "JobState")) not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} is {state}, not {states}\n" + self.run(["scontrol", "show", "job", job], check=False))
            time.sleep(0.1)
        return state
