// How to resume: the end of the last line of a run that lost a machine, process or link.
#pragma once
#include <string>

namespace grapevine {

// "; resume with --resume PATH"; "; no checkpoint was written" where `path` is empty.
std::string resume_hint(const std::string& path);
// "; a checkpoint was being written: look in OUT".
std::string writing_hint(const std::string& out);
// "; look for a checkpoint in OUT on HOST": of a process that knows of none.
std::string search_hint(const std::string& out, const std::string& host);
// The hint at the end of an error line; empty where it has none.
std::string resume_hint_in(const std::string& line);
// The folder of the run of a checkpoint: OUT of OUT/checkpoint/NAME. Else `checkpoint`.
std::string run_folder_of(const std::string& checkpoint);

}  // namespace grapevine
