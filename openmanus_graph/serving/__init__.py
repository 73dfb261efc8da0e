"""What every server of ours needs: who may come in, how it is run, and the runs of its clients."""
