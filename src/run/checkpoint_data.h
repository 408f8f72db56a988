// What a checkpoint says of the data it was trained on: a fingerprint of them (text/data_fingerprint.h), and
// the place in them where the data source knows one. A checkpoint that was written before fingerprints were
// kept has none and goes on with any data.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "data/batch.h"
#include "text/data_fingerprint.h"

namespace trifold {

// Puts the fingerprint into the state of a checkpoint that is being saved.
void note_data(CheckpointMeta& meta, const DataFingerprint& data);

// How `data` differ from those of the checkpoint, for a message; empty where they do not, and where the
// checkpoint does not say. BadInput when what it says cannot be read.
std::string data_difference(const CheckpointMeta& meta, const DataFingerprint& data);

// BadInput, naming the first difference, unless the data are the same or `may_differ`. `name` is the
// checkpoint's.
void check_training_data(const CheckpointMeta& meta, const std::string& name, const DataFingerprint& data,
                         bool may_differ);

// Where in the data the run of a checkpoint was (data/batch.h); empty where the samples consumed say it all.
// BadInput when it cannot be read.
std::string data_bookmark(const CheckpointMeta& meta);

// Opens `source` at that place. BadInput where the place is one in other data; with `may_differ` the samples
// are counted from the beginning of these data then, which takes longer.
void open_at_place(const CheckpointMeta& meta, const DataSource& source, bool may_differ);

}  // namespace trifold
