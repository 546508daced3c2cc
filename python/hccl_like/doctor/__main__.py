import sys

from hccl_like.doctor import main

sys.exit(main())
