#include "muoncore/comm/group.h"

#include <utility>

namespace muoncore::comm {

Group::Group(std::string name, int64_t rank, std::vector<int64_t> global_ranks)
    : name_(std::move(name)), rank_(rank), global_ranks_(std::move(global_ranks)) {}

}  // namespace muoncore::comm
