// The part of a checkpoint that identifies its training data: a fingerprint (text/data_fingerprint.h) and, if the
// source has bookmarks, the position in the data. Older checkpoints have no fingerprint and resume with any data.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "data/batch.h"
#include "text/data_fingerprint.h"

namespace trifold {

// Puts the fingerprint into the state of a checkpoint that is being saved.
void note_data(CheckpointMeta& meta, const DataFingerprint& data);

// How `data` differ from the checkpoint's data, for a message; empty if they do not, or if the checkpoint has no
// fingerprint. BadInput if the fingerprint cannot be read.
std::string data_difference(const CheckpointMeta& meta, const DataFingerprint& data);

// BadInput, naming the first difference, unless the data are the same or `may_differ`. `name` is the checkpoint's name.
void check_training_data(const CheckpointMeta& meta, const std::string& name, const DataFingerprint& data,
                         bool may_differ);

// The bookmark of a checkpoint's run in its data (data/batch.h); empty if the number of consumed samples suffices.
// BadInput if it cannot be read.
std::string data_bookmark(const CheckpointMeta& meta);

// Opens `source` at the checkpoint's bookmark. BadInput if the bookmark belongs to other data; with `may_differ` the
// samples are then counted from the beginning of the data, which takes longer.
void open_at_bookmark(const CheckpointMeta& meta, const DataSource& source, bool may_differ);

}  // namespace trifold
