// What the options of `train` ask of the zoo, for a fuzzer that is built without it.
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"

namespace grapevine {

std::vector<std::string> data_specs() { return {"glyphs[:N]"}; }
std::vector<std::string> model_names() { return {"lenet"}; }

}  // namespace grapevine
