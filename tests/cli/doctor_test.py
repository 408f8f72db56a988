"""`trifold doctor` reports what is present, missing and broken, and how to get it."""

import json
import os
import shutil
import subprocess
import unittest

from program import TRIFOLD, ProgramTest

CHECKS = {
    "cpu": {"operations", "cores", "host_cores", "core_limit"},
    "memory": {"bytes", "allowed_bytes", "allowed_with_swap_bytes", "free_bytes", "shared_memory_bytes",
               "shared_memory_free_bytes"},
    "libraries": {"hdf5", "icu", "onednn", "libarchive"},
    "batch": {"system", "job", "hosts"},
    "mpi": {"module", "library", "mpiexec", "rank", "ranks"},
    "cuda": {"module", "driver", "needed", "devices", "libraries"},
    "parquet": {"module", "arrow"},
    "jinja": {"module", "jinja"},
}
FOREIGN = {"SLURM_", "PBS_", "LSB_", "SGE_", "PMI_", "PMIX_", "OMPI_", "MV2_", "TRIFOLD_MODULE_PATH"}


def is_foreign(name):
    return any(name.startswith(begin) for begin in FOREIGN)


class Doctor(ProgramTest):
    def doctor(self, *words, status=0, program=TRIFOLD, **variables):
        """Runs it outside any batch job and launcher, with these variables; returns (stdout, stderr)."""
        environment = {name: value for name, value in os.environ.items() if not is_foreign(name)}
        done = subprocess.run([program, "doctor", *words], cwd=self.folder, env={**environment, **variables}, text=True,
                              capture_output=True, timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def report(self, **options):
        return json.loads(self.doctor("--json", "-", **options)[0])

    def copy_program(self):
        """The program without its modules, in a tree of its own."""
        (self.folder / "bin").mkdir()
        (self.folder / "lib" / "trifold").mkdir(parents=True)
        return shutil.copy(TRIFOLD, self.folder / "bin" / "trifold")

    def test_the_table_fits_a_screen(self):
        out, err = self.doctor()
        self.assertEqual(err, "")
        for title in ("CPU", "memory", "libraries", "batch system", "MPI", "CUDA", "Parquet", "Jinja"):
            self.assertRegex(out, rf"(?m)^{title} +(ok|absent) +\S")
        self.assertRegex(out, r"^trifold \d+\.\d+\.\d+, /")
        self.assertTrue(out.endswith("\nEverything that this installation has can be used.\n"))
        self.assertLessEqual(len(out.splitlines()), 24, out)
        self.assertEqual([line for line in out.splitlines() if len(line) > 100 and " " in line.strip()[:60]], [])

    def test_json_has_fixed_keys(self):
        whole = self.report()
        self.assertEqual(set(whole), {"made_by", "version", "program", "sound", "checks"})
        self.assertEqual(whole["made_by"], "trifold doctor")
        self.assertRegex(whole["version"], r"^\d+\.\d+\.\d+$")
        self.assertIs(whole["sound"], True)
        self.assertEqual(list(whole["checks"]), list(CHECKS))
        for name, keys in CHECKS.items():
            self.assertEqual(set(whole["checks"][name]), {"state", "found", "advice"} | keys, name)
            self.assertIn(whole["checks"][name]["state"], ("ok", "absent"))
        self.assertGreater(whole["checks"]["memory"]["bytes"], 2**26)
        self.assertEqual(whole["checks"]["cpu"]["cores"], len(os.sched_getaffinity(0)))

    def test_json_goes_to_a_file_next_to_the_table(self):
        self.assertIn("CPU", self.doctor("--json", "report.json")[0])
        self.doctor("--json", "report.json")  # its own file may be replaced
        written = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(list(written["checks"]), list(CHECKS))
        self.assertEqual(self.doctor("--json", "no/folder.json", status=2)[0], "")

    def test_missing_modules_are_no_failure(self):
        program = self.copy_program()
        out, _ = self.doctor(program=program)
        for title, module in (("MPI", "trifold_mpi.so"), ("CUDA", "trifold_cuda.so"), ("Parquet", "trifold_parquet.so"),
                              ("Jinja", "trifold_jinja.so")):
            self.assertRegex(out, rf"(?m)^{title} +absent +this installation has no module {module}\n +-> \S")
        self.assertIn("docs/install.md#parquet", out)
        self.assertIn("apt-get install mpich", out)
        checks = self.report(program=program)["checks"]
        for name in ("mpi", "cuda", "parquet", "jinja"):
            self.assertEqual(set(checks[name]), {"state", "found", "advice"} | CHECKS[name], name)
            self.assertIsNone(checks[name]["module"])

    def test_a_broken_module_is_a_failure_with_the_message_of_the_loader(self):
        program = self.copy_program()
        module = self.folder / "lib" / "trifold" / "trifold_parquet.so"
        module.write_text("this is not a library\n" * 20)
        out, _ = self.doctor(program=program, status=1)
        self.assertRegex(out, r"(?m)^Parquet +BROKEN ")
        self.assertTrue(out.endswith("\nBroken: Parquet\n"), out)
        report = self.report(program=program, status=1)
        self.assertIs(report["sound"], False)
        self.assertEqual(report["checks"]["parquet"]["state"], "broken")
        self.assertEqual(report["checks"]["parquet"]["found"], f"{module}: invalid ELF header")
        self.assertEqual(report["checks"]["mpi"]["state"], "absent")

    def compile_module(self, name, source, *options):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler to make a module with")
        file = self.folder / "lib" / "trifold" / name
        subprocess.run([compiler, "-shared", "-fPIC", "-o", file, "-x", "c", "-", "-x", "none", *options], input=source.encode(), check=True,
                       timeout=60)
        return file

    def test_a_module_of_another_build_is_broken(self):
        program = self.copy_program()
        self.compile_module("trifold_mpi.so", "long trifold_mpi_version(void) { return 1; }")
        found = self.report(program=program, status=1)["checks"]["mpi"]["found"]
        self.assertIn("belongs to another build of Trifold (version 1, not ", found)
        self.compile_module("trifold_mpi.so", "int nothing;")
        self.assertIn("has no function trifold_mpi_version", self.doctor(program=program, status=1)[0].replace("\n" + " " * 22, " "))

    def test_a_module_that_kills_its_process_is_broken(self):
        program = self.copy_program()
        self.compile_module("trifold_cuda.so", "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }")
        found = self.report(program=program, status=1)["checks"]["cuda"]["found"]
        self.assertIn("loading trifold_cuda.so ends the process with signal 6", found)

    def test_a_missing_library_is_absent(self):
        program = self.copy_program()
        library = self.compile_module("libnowhere.so", "int nowhere;")
        self.compile_module("trifold_mpi.so", "extern int nowhere; int *here = &nowhere;", str(library.parent / "libnowhere.so"))
        library.unlink()
        check = self.report(program=program)["checks"]["mpi"]
        self.assertEqual(check["state"], "absent")
        self.assertIn("libnowhere.so: cannot open shared object file", check["found"])

    def test_batch_systems_are_seen_by_their_jobs(self):
        out, _ = self.doctor(SLURM_JOB_ID="4711", SLURM_JOB_NUM_NODES="2")
        self.assertRegex(out, r"(?m)^batch system +ok +Slurm, inside job 4711 on 2 hosts$")
        for variables, system, job in (({"PBS_JOBID": "12.pbs"}, "PBS", "12.pbs"), ({"LSB_JOBID": "3"}, "LSF", "3"),
                                       ({"SGE_TASK_ID": "undefined", "JOB_ID": "5"}, "Grid Engine", "5")):
            batch = self.report(**variables)["checks"]["batch"]
            self.assertEqual((batch["system"], batch["job"]), (system, job))

    def test_batch_systems_are_seen_by_their_commands(self):
        command = self.folder / "sbatch"
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        out, _ = self.doctor(PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertRegex(out, rf"(?m)^batch system +ok +Slurm \({command}\), outside a job$")

    def test_one_rank_of_a_launcher_reports(self):
        self.assertEqual(self.doctor("--json", "-", PMI_RANK="1", PMI_SIZE="2"), ("", ""))
        mpi = self.report(PMI_RANK="0", PMI_SIZE="2")["checks"]["mpi"]
        self.assertEqual((mpi["rank"], mpi["ranks"]), (0, 2))

    def test_an_mpiexec_of_another_mpi_is_broken(self):
        if self.report()["checks"]["mpi"]["library"] is None:
            self.skipTest("this build has no MPI module")
        ours = self.report()["checks"]["mpi"]["library"]
        other = self.folder / ("orterun" if "Open MPI" not in ours else "mpiexec.hydra")
        other.write_text("#!/bin/sh\n")
        other.chmod(0o755)
        (self.folder / "mpiexec").symlink_to(other)
        check = self.report(PATH=f"{self.folder}:{os.environ['PATH']}", status=1)["checks"]["mpi"]
        self.assertEqual(check["state"], "broken")
        self.assertIn(f"{self.folder}/mpiexec belongs to another MPI", check["found"])

    def test_help_and_mistakes(self):
        self.assertIn("usage: trifold doctor [options]", self.doctor("--help")[0])
        self.assertIn("unknown option --fix", self.doctor("--fix", status=2)[1])
        self.assertIn("'now' belongs to no option", self.doctor("now", status=2)[1])


if __name__ == "__main__":
    unittest.main()
