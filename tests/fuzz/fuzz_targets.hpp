// The targets of the fuzzers. Each takes any bytes, and throws InvariantBroken where the code that
// it calls breaks a promise. libFuzzer calls them in the build with GRAPEVINE_FUZZ (scripts/fuzz);
// corpus_test.cpp calls them with the files of corpus/<target>/ in every build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/check.hpp"
#include "messages/expected.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {

// An encoded message (codec_property.hpp).
void fuzz_one_codec(const std::uint8_t* data, std::size_t size);

// The TOML text of a wiring. One that resolves is written and read back as the same keys.
void fuzz_one_wiring(const std::uint8_t* data, std::size_t size);

// A job file of `train`. The arguments that travel to other machines are accepted there.
void fuzz_one_job_file(const std::uint8_t* data, std::size_t size);

// A byte that selects a decoder of a trace, then the body of its frame. What decodes is encoded and
// decoded again as the same.
void fuzz_one_trace_frame(const std::uint8_t* data, std::size_t size);

// Files of a trace (trace_input.hpp). They merge in the order of time, twice the same.
void fuzz_one_trace_file(const std::uint8_t* data, std::size_t size);

// The file of a data set: a byte that selects its kind, then the bytes of the file or the labels in
// it. A batch of what is read has the shape that the data set states.
void fuzz_one_data(const std::uint8_t* data, std::size_t size);

// Arrays or tokens of a user: a byte that selects their form, then lines that are headers of arrays
// of NumPy and their values, a whole array file, or tokens. Batches have the stated shapes.
void fuzz_one_own_data(const std::uint8_t* data, std::size_t size);

// A byte that selects a message between processes (actors/protocol/, node_protocol.hpp), then
// its bytes. What is read is written and read again as the same.
void fuzz_one_control(const std::uint8_t* data, std::size_t size);

// The job.json of a checkpoint. It may have more members: "states", the states of the ranks in
// place of their files (state_input.hpp); "change", another number of ranks; "dict", a dict as
// another program may have pickled it.
void fuzz_one_checkpoint(const std::uint8_t* data, std::size_t size);

// Errors are for people: one line, which does not steer the terminal.
inline void check_one_line(const Error& error) {
  GRAPEVINE_CHECK(!error.message.empty() && !has_control_characters(error.message),
                  "an error is not one line: '", error.message, "'");
}

}  // namespace grapevine
