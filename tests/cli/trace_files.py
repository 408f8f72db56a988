"""Reads the traces of --trace, as an independent reader and, where it is installed, with the classes of Perfetto's own package."""

import collections
import importlib.util

from event_files import fields, first

BEGIN, END = 1, 2
HAS_PERFETTO = importlib.util.find_spec("perfetto") is not None  # pip install perfetto


def slices_of_perfetto(data):
    """(name, begin, end, notes) of every slice, as Perfetto's own classes read the file."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Theirs
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    theirs = Theirs()
    theirs.ParseFromString(data)
    if len(theirs.SerializeToString(deterministic=True)) != len(data):
        raise ValueError("a field is unknown to Perfetto")
    begun, found = {}, []
    for packet in theirs.packet:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            begun[event.track_uuid] = (event.name, packet.timestamp, {note.name: note.int_value for note in event.debug_annotations})
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, begin, notes = begun.pop(event.track_uuid)
            found.append((name, begin, packet.timestamp, notes))
    return found


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
        if HAS_PERFETTO:
            self.compare(slices_of_perfetto(data))

    def compare(self, theirs):
        def ordered(slices):
            return sorted((*slice[:3], sorted(slice[3].items())) for slice in slices)
        if ordered(theirs) != ordered(slice for slices in self.slices.values() for slice in slices):
            raise ValueError("Perfetto's classes read other slices")

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
