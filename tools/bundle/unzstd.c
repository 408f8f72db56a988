// Standard input, compressed by zstd, to standard output. Linked statically into what tools/gpu_bundle.sh makes, for
// machines that have no zstd. Exit status 1 where the input is damaged or ends early, or the output cannot be written.
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

int main(void) {
  const size_t read_most = ZSTD_DStreamInSize();
  const size_t write_most = ZSTD_DStreamOutSize();
  void* const from = malloc(read_most);
  void* const to = malloc(write_most);
  ZSTD_DStream* const stream = ZSTD_createDStream();
  if (from == NULL || to == NULL || stream == NULL) return 1;
  size_t left = 1;  // 0 at the end of a frame
  for (size_t count; (count = fread(from, 1, read_most, stdin)) > 0;) {
    ZSTD_inBuffer in = {from, count, 0};
    while (in.pos < in.size) {
      ZSTD_outBuffer out = {to, write_most, 0};
      left = ZSTD_decompressStream(stream, &out, &in);
      if (ZSTD_isError(left)) {
        fprintf(stderr, "unzstd: %s\n", ZSTD_getErrorName(left));
        return 1;
      }
      if (fwrite(to, 1, out.pos, stdout) != out.pos) return 1;
    }
  }
  if (left != 0) fprintf(stderr, "unzstd: the input ends early\n");
  return left != 0 || fflush(stdout) != 0;
}
