/* The first process of podman's containers, as bytes. */
	.section .rodata
	.global podman_box_start, podman_box_end
	.hidden podman_box_start, podman_box_end
podman_box_start:
	.incbin PODMAN_BOX_FILE
podman_box_end:
	.section .note.GNU-stack, "", %progbits
