import sys

from hccl_like.bench import main

sys.exit(main())
