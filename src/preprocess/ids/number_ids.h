// The second pass of preprocessing: turns a column of 32-bit or 64-bit hashes into a column of ids.
//
//   id 0   a missing value (hash 0)
//   id 1   a value that is rare (seen less often than the threshold), or not in a given dictionary
//   2 ...  all others, in order of first appearance: the dictionary. One that grows begins with the values of an older
//          one, in their order, whether they occur or not
//
// Memory stays below a limit however many values there are. A dictionary that would exceed it is made in partitions:
// each pass over the column counts only the values whose hash falls into its partition and writes the frequent ones,
// with the sample of their first appearance, to a file; merging these files by that sample gives the same dictionary.
// Another pass for each partition writes its ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trifold {

struct IdColumnJob {
  std::string keys;          // file of hashes, one per sample
  int key_bytes = 4;         // bytes per hash: 4 or 8
  std::string scratch;       // prefix for names of temporary files
  std::string ids;           // output file: ids of id_bytes each
  std::string dictionary;    // file with the hashes of id 2, 3, ...; written, or read if `given`
  std::optional<int> given;  // bytes of a hash in an existing dictionary: 4, or 8 if keys have 8
  struct Known {
    std::string file;
    int bytes = 4;  // bytes per hash, as in `given`
  };
  std::optional<Known> known;  // an older dictionary that this one begins with; not together with `given`
  int64_t threshold = 1;       // occurrences that a value needs for an id, unless it is known
  size_t memory = 0;           // approximate bytes for the dictionary
};

struct IdColumnResult {
  int64_t rows = 0;  // ids are less than this
  int id_bytes = 4;
  int dictionary_bytes = 4;  // bytes per hash in the dictionary: 4 if all fit
  int partitions = 1;        // 1: the dictionary fit into memory
};

// Bytes of an id of a table with that many rows: 1, 2 or 4.
int id_bytes_for(int64_t rows);

// Makes the ids and the dictionary. BadInput or Failure, naming the file, if one cannot be read or written; temporary
// files are removed.
IdColumnResult number_ids(const IdColumnJob& job);

// Makes the ids without a dictionary: 4-byte hashes modulo `rows`. Errors as number_ids.
IdColumnResult number_hashed_ids(const IdColumnJob& job, int64_t rows);

}  // namespace trifold
