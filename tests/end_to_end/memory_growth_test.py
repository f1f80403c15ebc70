"""Memory a rank does not grow with the number of records: a unit a record, from ten thousand records to three million."""
import tempfile
import unittest

import many_records

FEW, MANY = 10_000, 3_000_000
# A pass takes a second: the run of few records is not at its end when it is stopped, however late that is.
SLOW = {"MAGISTER_FAIL_POINT": ",".join(["generate.pass:slow"] * 10)}
BYTES_A_RECORD = 4  # a list of lengths, of units or of offsets has as many or more: it was 14 for planning and 38 for running


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.runs = many_records.Runs(cls.scratch.name)
        cls.data = {count: many_records.write_records(cls.runs.folder / f"{count}.jsonl", count, "tokens") for count in (FEW, MANY)}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def growth(self, measure):
        """Bytes a record that the largest rank has more. The same run differs from itself by 2 MB and more, for pages of libraries count, too, and
        what one loads late is there in one run and not yet in the next (12 MB were seen): so three million records, where 2 MB are not a byte
        each, and up to three times, the most of the few against the least of the many; what grows with the records, does every time."""
        few, many = [], []
        for _ in range(3):
            few.append(max(measure(FEW)))
            many.append(max(measure(MANY)))
            grown = (min(many) - max(few)) / (MANY - FEW)
            print(f"{few[-1]} bytes at {FEW} records, {many[-1]} at {MANY}: {grown:.1f} a record")
            if grown < BYTES_A_RECORD:
                break
        return grown

    def test_planning(self):
        # Of a task that writes no tokens: for one that does, `plan` reads 64 MiB a core for its estimate of the time, and what grows less is hidden by that.
        of_a_record = {"task": "teacher_logits", "unit_tokens": 1}
        for ranks in (1, 2):
            experiments = {count: self.runs.experiment(f"plan-{count}", self.data[count], "tokens", **of_a_record) for count in self.data}
            self.assertLess(self.growth(lambda count: self.runs.plan(experiments[count], ranks)[1]), BYTES_A_RECORD)

    def test_running_and_going_on(self):
        for ranks in (1, 2):
            for what in ("starts", "goes on"):
                names = {count: f"run-{ranks}-{count}" for count in self.data}
                experiments = {count: self.runs.experiment(names[count], self.data[count], "tokens") for count in self.data}
                grown = self.growth(lambda count: self.runs.run_to_first_units(experiments[count], names[count], ranks, **SLOW)[1])
                self.assertLess(grown, BYTES_A_RECORD, f"{ranks} ranks, a run that {what}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
