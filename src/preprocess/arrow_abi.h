// The memory in which libraries of Apache Arrow pass columns to each other, in plain C: the "Arrow C data interface"
// and "C stream interface" of Arrow's specification, whose names and order of members these are. It does not change
// with the version of Arrow or of the compiler, so it is what crosses into the module of Parquet.
//
// The receiver of such a struct owns it, and calls its `release`, which sets itself to null, once.
#pragma once

#include <cstdint>

extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

// The type of a column. `format` spells it: "l" is int64, "+l" a list of its child.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;  // of numbers into a list of values: their type
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

// Values of such a type. buffers[0] has a bit for each that says that it is there; null: all are.
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;  // of the first value in the buffers
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

// Arrays of one type, one after the other: released ones (release is null) at the end. Functions return 0, or a number
// of errno.h with a text until the next call.
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif
}
