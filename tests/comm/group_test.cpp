#include "muoncore/comm/group.h"
