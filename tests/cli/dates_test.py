"""Columns of dates and times become numbers and categories by their parts: from ISO texts, with and without a zone, and from numbers."""

import datetime
import random
import unittest

from preprocessed import PreprocessTest

UTC = datetime.timezone.utc
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")


class Dates(PreprocessTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(3)
        self.times = [datetime.datetime(2019 + draw.randrange(6), 1 + draw.randrange(12), 1 + draw.randrange(28), draw.randrange(24), draw.randrange(60),
                                        draw.randrange(60), tzinfo=UTC) for _ in range(50)]
        self.times[7] = None

    def table(self, name, spell):
        self.write(name, "y,time\n" + "".join(f"{i % 2},{'' if time is None else spell(time)}\n" for i, time in enumerate(self.times)))

    def expected(self):
        """The same features in columns of their own."""
        def parts(time):
            if time is None:
                return ["", ""] + [""] * len(PARTS)
            seconds = time.timestamp()
            return [seconds / 86400, seconds, time.year, time.month, time.day, time.isoweekday(), time.hour, time.minute, time.second]
        names = ["days", "seconds", *PARTS]
        self.write("expected.csv", "y," + ",".join(f"time_{name}" for name in names) + "\n" +
                   "".join(",".join(map(str, [i % 2, *parts(time)])) + "\n" for i, time in enumerate(self.times)))
        columns = [f"time_{name}" for name in names]
        self.preprocess("expected.csv", "expected", columns=("--label", "y", "--dense", ",".join(columns[:2] + columns[6:7]), "--sparse", ",".join(columns[2:]), "--threads", 1))
        return self.folder_of("expected")

    def test_all_spellings_have_the_same_parts(self):
        columns = ("--label", "y", "--dense", "time@days,time@seconds,time@hour", "--sparse", ",".join(f"time@{part}" for part in PARTS), "--threads", 2)
        _, labels, dense, ids = self.expected()
        east = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
        spellings = {"plain": lambda t: t.strftime("%Y-%m-%d %H:%M:%S"), "iso": lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ"),
                     "zone": lambda t: t.astimezone(east).isoformat(), "seconds": lambda t: int(t.timestamp()), "float": lambda t: f"{t.timestamp():.1f}",
                     "millis": lambda t: int(t.timestamp() * 1000), "micros": lambda t: int(t.timestamp() * 1000000), "nanos": lambda t: int(t.timestamp()) * 10 ** 9}
        for name, spell in spellings.items():
            self.table(name + ".csv", spell)
            self.preprocess(name + ".csv", name, columns=columns)
            found = self.folder_of(name)
            self.assertEqual((found[1], found[3]), (labels, ids), name)
            for a, b in zip(found[2], dense, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(b)), msg=name)

    def test_dates_alone(self):
        self.write("dates.csv", "y,on\n1,2024-02-29\n0,\n1,2023-12-31\n")
        self.preprocess("dates.csv", "dates", "--dense-transform", "none", columns=("--label", "y", "--dense", "on@days,on@year", "--sparse", "on,on@weekday", "--threads", 1))
        manifest, _, dense, ids = self.folder_of("dates")
        self.assertEqual(dense, [19782, 2024, 0, 0, 19722, 2023])
        self.assertEqual(ids, {"on": [2, 0, 3], "on_weekday": [2, 0, 3]})
        self.assertEqual(manifest["columns"]["sparse"], "on,on@weekday")
        # Later days take the parts from there.
        self.preprocess("dates.csv", "later", columns=("--dictionaries-of", "dates", "--dense-transform", "none", "--threads", 1))
        self.assertEqual(self.folder_of("later")[1:], self.folder_of("dates")[1:])

    def test_a_column_of_such_a_name_comes_first(self):
        self.write("names.csv", "y,time@hour,time\n1,a,2024-01-01 05:00\n0,b,2024-01-01 05:00\n")
        self.preprocess("names.csv", "names", columns=("--label", "y", "--sparse", "time@hour,time@day", "--threads", 1))
        self.assertEqual(self.folder_of("names")[3], {"time_hour": [2, 3], "time_day": [2, 2]})

    def test_mistakes(self):
        self.write("bad.csv", "y,time\n1,yesterday\n0,2024-02-30\n")
        for columns, words in (("time@hour", "column time@hour: 'yesterday' is not a date or time (ISO 8601, or seconds since 1970)"),
                               ("time@week", "--sparse names the column 'time@week'"), ("day@hour", "--sparse names the column 'day'"),
                               ("time@hour,time@hour", "--sparse names the column 'time@hour', which another option names already")):
            _, err = self.preprocess("bad.csv", "x", columns=("--label", "y", "--sparse", columns, "--threads", 1), status=2)
            self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main()
