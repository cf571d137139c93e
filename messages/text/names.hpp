// Errors for names that a user typed.
#pragma once
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// "unknown <what> 'expnential': did you mean 'exponential'? valid: a, b, c". The guess is the entry
// with the smallest edit distance, left out where nothing is near (distance > half the length). A
// long list is left out beside a guess.
Error unknown_name(const std::string& what, const std::string& name,
                   const std::vector<std::string>& valid);

}  // namespace grapevine
