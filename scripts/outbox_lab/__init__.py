"""Code that is not part of any distribution: the fault drill and the document generators."""
