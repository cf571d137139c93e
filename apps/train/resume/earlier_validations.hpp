// The validations of the run that a run continues.
#pragma once
#include <filesystem>
#include <map>

#include "gpu/compute.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// By epoch from 0, from a run's metrics.csv: loss and top-1. Those of epoch `end` and later ones,
// which are to be repeated, and rows that are cut off are left out; empty where there is no such
// file.
std::map<Epoch, Evaluation> earlier_validations(const std::filesystem::path& metrics, Epoch end);

}  // namespace grapevine
