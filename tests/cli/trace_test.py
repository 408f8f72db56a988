"""`trifold report --trace`: what the flight recorders kept, and the planned step, as an independent reader and, where it is
installed, the classes of Perfetto's own package read them."""

import collections
import importlib.util
import unittest

from event_files import fields, first, skip_without_protozero
from program import ProgramTest

BEGIN, END = 1, 2


class Trace:
    """The tracks of a file: {(process, track): [(name, begin, end, notes)]}. Slices that are not well nested are an error."""

    def __init__(self, data):
        self.names, self.parents, self.slices = {}, {}, collections.defaultdict(list)
        self.open = {}
        for number, packet in fields(data):
            if number != 1:
                raise ValueError(f"field {number}")
            descriptor, event = first(packet, 60, None), first(packet, 11, None)
            if descriptor is not None:
                self.describe(descriptor)
            if event is not None:
                self.add(first(packet, 8), event)
        if any(self.open.values()):
            raise ValueError("a slice has no end")

    def describe(self, descriptor):
        uuid = first(descriptor, 1)
        if uuid in self.names:
            raise ValueError(f"track {uuid} is described twice")
        process = first(descriptor, 3)
        self.names[uuid] = (first(process, 6) if process else first(descriptor, 2)).decode()
        self.parents[uuid] = first(descriptor, 5, None)

    def add(self, when, event):
        track = first(event, 11)
        place = (self.names[self.parents[track]], self.names[track])
        if first(event, 9) == BEGIN:
            if self.open.get(track) or when < max((end for _, _, end, _ in self.slices[place, track]), default=0):
                raise ValueError(f"slices of {place} overlap")
            notes = {first(note, 10).decode(): first(note, 4, 0) for number, note in fields(event) if number == 4}
            self.open[track] = (first(event, 23).decode(), when, notes)
        else:
            name, begin, notes = self.open.pop(track)
            self.slices[place, track].append((name, begin, when, notes))

    def of(self, process, name):
        return [slice for (place, _), slices in self.slices.items() if place[0].startswith(process) and place[1] == name for slice in slices]


class Traces(ProgramTest):
    def setUp(self):
        super().setUp()
        skip_without_protozero(self)

    def trace(self, *more):
        self.pretrain("--train-iters", 6, "--ranks", 4, "--pp", 2, "--log-json", "log.jsonl", "--flight-dir", "flight", *more)
        self.trifold("report", "log.jsonl", "--output", "page.html", "--trace", "t.pftrace", "--flight", "flight")
        return (self.folder / "t.pftrace").read_bytes()

    def test_measured_and_planned_steps(self):
        trace = Trace(self.trace())
        seconds = {line["step"]: line["step_seconds"] for line in self.log()}
        for rank in range(4):
            steps = [slice for slice in trace.of(f"rank {rank} on host ", "run") if slice[0] == "step"]
            self.assertEqual([notes["step"] for *_, notes in steps], [1, 2, 3, 4, 5, 6])
            actions = [slice for slice in trace.of(f"rank {rank} on host ", "actions") if slice[3]["step"] == 6]
            self.assertGreaterEqual(len(actions), 4)  # a forward and a backward of two micro-batches at least
            begin, end = steps[-1][1:3]
            self.assertTrue(all(begin <= one[1] <= one[2] <= end for one in actions), actions)
        # A step of rank 0 encloses what the log says it took, and little besides; a busy machine may interrupt it there.
        steps = [slice for slice in trace.of("rank 0 on host ", "run") if slice[0] == "step"]
        besides = sorted((end - begin) / 1e9 - seconds[notes["step"]] for _, begin, end, notes in steps)
        self.assertGreater(besides[0], -1e-6)
        self.assertLess(besides[len(besides) // 2], 1e-3)
        self.assertTrue(trace.of("rank 1 on host ", "collectives"))
        sent = [slice[3] for slice in trace.of("rank 0 on host ", "sends")]
        self.assertTrue(sent and all(notes["peer"] != 0 and notes["bytes"] > 0 for notes in sent))
        # The plan begins where the last step of rank 0 does, and has the actions that the ranks made in it.
        planned = trace.of("planned, pipeline rank 0", "actions")
        self.assertEqual(min(slice[1] for slice in planned), steps[-1][1])
        made = {slice[0] for slice in trace.of("rank 0 on host ", "actions") if slice[3]["step"] == 6}
        forwards = {name for name, *_ in planned if "F" in name}
        self.assertTrue(forwards and forwards <= made, (forwards, made))

    def test_a_plan_that_is_missing_is_noted(self):
        self.trace()
        (self.folder / "log.jsonl").write_text('{"step":1,"loss":1,"lr":1}\n')
        _, message = self.trifold("report", "log.jsonl", "--output", "page.html", "--trace", "t.pftrace", "--flight", "flight")
        self.assertIn("note: --trace: the planned step is missing, because the log has no options of the run", message)
        self.assertFalse(Trace((self.folder / "t.pftrace").read_bytes()).of("planned", "actions"))

    def test_files_that_are_missing(self):
        (self.folder / "log").write_text('{"step":1,"loss":1,"lr":1}\n')
        (self.folder / "none").mkdir()
        for options, message in ((["--trace", "t"], "--flight"), (["--flight", "none"], "--trace"),
                                 (["--trace", "t", "--flight", "none"], "none has no files of a flight recorder"),
                                 (["--trace", "log", "--flight", "none"], "--trace log is RUN log")):
            _, err = self.trifold("report", "log", "--output", "page.html", *options, status=2)
            self.assertIn(message, err)
        self.assertEqual(self.files(), ["log", "none"])

    @unittest.skipUnless(importlib.util.find_spec("perfetto"), "Perfetto's package is not installed: pip install perfetto")
    def test_perfettos_own_classes_read_the_same(self):
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Theirs
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
        data = self.trace()
        theirs = Theirs()
        theirs.ParseFromString(data)
        self.assertEqual(theirs.SerializeToString(deterministic=True).__len__(), len(data))  # no field is unknown to it
        begun, found = {}, []
        for packet in theirs.packet:
            event = packet.track_event
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                begun[event.track_uuid] = (event.name, packet.timestamp)
            elif event.type == TrackEvent.TYPE_SLICE_END:
                found.append((*begun.pop(event.track_uuid), packet.timestamp))
        ours = [slice[:3] for slices in Trace(data).slices.values() for slice in slices]
        self.assertEqual(sorted(found), sorted(ours))
        self.assertGreater(len(found), 100)


if __name__ == "__main__":
    unittest.main()
